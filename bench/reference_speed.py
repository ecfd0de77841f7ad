"""Plain decoding speed of transformers for the same model: the yardstick that is not ours. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
import warnings


def measure(folder: str, prompt: str, tokens: int) -> dict[str, float]:
    """Greedy decoding on one CPU thread in fp32, without padding rows; tokens/s behind the first token."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)

    def run(count: int) -> float:
        began = time.perf_counter()
        model.generate(**inputs, do_sample=False, max_new_tokens=count, min_new_tokens=count, use_cache=True)
        return time.perf_counter() - began

    run(2)
    first, whole = run(1), run(tokens)
    return {"tokens_per_s": (tokens - 1) / (whole - first), "ttft_s": first, "tokens": tokens}


if __name__ == "__main__":
    folder, prompt, tokens = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(folder, prompt, int(tokens))) + "\n")
