"""A conversation of twenty turns in ordinary English, as people have them: short questions, answers of a paragraph."""

from __future__ import annotations

CONVERSATION: tuple[tuple[str, str], ...] = (
    (
        "I inherited a small wooden sailing boat, about six metres long, and I have never sailed. Where do I start?",
        "Start with the boat on land. Look for soft wood along the keel and around every fitting: press with the "
        "handle of a screwdriver, and where it gives way, the wood is rotten. Check the mast for cracks, the ropes "
        "for chafe and the sails for torn seams. Then take a beginner's course before you launch her. A weekend "
        "with a teacher saves you a summer of guessing, and you will know what to ask when you look at your own "
        "boat again.",
    ),
    (
        "I found a soft spot next to the centreboard case, maybe the size of my hand. Is that serious?",
        "It may be. The case is where a small boat leaks first, because the board works it loose with every wave. "
        "Dry the place for a week under cover and then find out how deep the damage goes with a thin awl. If only "
        "the surface is soft, you can cut it out and glue in a patch with epoxy. If the awl goes through, a frame "
        "or the keel may be affected as well, and a boatbuilder should look at it before you do anything else.",
    ),
    (
        "The awl stops after about four millimetres. How do I make a patch like that?",
        "Cut away everything soft and give the hole sloping edges, eight times as wide as it is deep, so that the "
        "glue has a large surface. Shape a piece of the same wood with the grain running the same way. Wet both "
        "sides with plain epoxy, wait ten minutes, then add some filler to the rest and press the patch in with "
        "weights on a sheet of plastic. After a day you can plane it flush. Paint it only when it no longer feels "
        "waxy.",
    ),
    (
        "Which wood should I use if I don't know what the hull is made of?",
        "Plane a thin shaving from a hidden place and smell it. Larch and pine smell of resin, cedar of pencils, "
        "oak is sour and mahogany smells of almost nothing. Compare weight and pores with samples from a timber "
        "yard. If you remain unsure, take something a little softer than the hull: a hard patch in a soft plank "
        "works loose at its edges when the wood swells.",
    ),
    (
        "It smells of resin, so pine or larch. What does the whole repair cost me, roughly?",
        "Not much. A kilogram of epoxy with hardener is about forty euros, the filler ten, a short board of larch "
        "fifteen, and brushes, gloves and plastic sheet another fifteen. Add a respirator if you sand a lot of "
        "cured epoxy. That makes eighty to a hundred euros, and most of the epoxy will be left for the next repair. "
        "What really costs is time: count on three weekends with the drying.",
    ),
    (
        "Good. While it dries, what should I learn first about sailing itself?",
        "Learn where the wind comes from without thinking about it. Everything else follows from that: which way "
        "the boom will swing, why you cannot steer straight into the wind, and when to let the sheet go. Sit by the "
        "water for an hour and watch flags, smoke and ripples. Then learn three words for the courses: close- "
        "hauled, reaching and running. With these you can follow any explanation.",
    ),
    (
        "Why can't a boat sail straight into the wind? It can go across it, after all.",
        "A sail works like a wing: it needs air that flows along both of its sides. Head straight into the wind and "
        "the air meets both sides alike, so the cloth only flaps. Turn away by about forty-five degrees and the "
        "flow bends around the curve of the sail, which pulls forward and sideways. The centreboard resists the "
        "sideways part, and what is left drives you ahead. To get to windward you therefore sail a zigzag.",
    ),
    (
        "And what do I do when a gust comes and she leans over too far?",
        "Three things, in this order: let out the mainsheet, sit out to the high side, and turn gently towards the "
        "wind. Letting out the sheet takes the force away at once, so practise it until your hand does it alone. "
        "Never cleat the sheet in a small boat, because then you have to think first. If she goes over anyway, stay "
        "with the hull, climb on the centreboard and lean back until she rises.",
    ),
    (
        "What should I wear in April, when the water is still cold?",
        "Dress for the water and not for the air. Below fifteen degrees that means a wetsuit of at least four "
        "millimetres or a drysuit with something woollen beneath. Add thin boots, gloves that let you feel a rope, "
        "a cap, and always a buoyancy aid. Cold water takes your breath for a minute and your strength within "
        "fifteen, and a person without a float rarely has that minute.",
    ),
    (
        "Do I need any licence or insurance for a boat this small?",
        "It depends on the country and on the water. For a boat without an engine many places ask for no licence at "
        "all, but some lakes have rules of their own, and harbours usually want to see liability insurance. Call "
        "the harbour master and your insurer and ask both the same question: a six-metre sailing dinghy, no engine, "
        "used on weekends. Liability for such a boat is commonly thirty to sixty euros a year.",
    ),
    (
        "The old sails are from 1988. Can I still use them for the first season?",
        "Probably, as long as the seams hold. Pull hard on the stitching near the corners: if the thread breaks, a "
        "sailmaker can sew it again for little money. Old cloth stretches, so the sail becomes baggy and the boat "
        "leans more and points less high. For a beginner that hardly matters. Wash the sails with lukewarm water "
        "and mild soap, dry them well, and keep them out of the sun when you do not need them.",
    ),
    (
        "How do I know whether the mast is set up correctly?",
        "Sight along the mast from below: it should be straight from side to side and lean back by a hand's width "
        "at most. The shrouds on both sides are equally tight, so that the leeward one just begins to go slack when "
        "you sail close to the wind. If she always wants to turn into the wind, bring the mast forward a little; if "
        "she turns away, move it aft. Change one thing at a time and write it down.",
    ),
    (
        "Could you give me a checklist for before each trip? Keep it short.",
        "Weather: forecast, wind now, clouds to windward. Boat: bungs in, bilge dry, shrouds pinned, rudder locked, "
        "centreboard moves. Gear: paddle, bailer, anchor with line, knife, whistle, phone in a dry bag, water. "
        "People: buoyancy aids on and closed, everyone warm, somebody on land knows where you go and when you are "
        "back. And last: is it still fun if it blows twice as hard?",
    ),
    (
        "What wind is right for the first few trips?",
        "Two to three on the Beaufort scale, which is six to ten knots: leaves move all the time, and there are "
        "small waves whose crests do not break yet. Less is harder than it sounds, because the boat answers slowly "
        "and you learn little. More than four is too much at first. Choose a day on which the wind blows towards "
        "the shore, so that you drift home if everything goes wrong.",
    ),
    (
        "My daughter is nine and wants to come along. Is that sensible?",
        "Yes, once you can handle the boat without thinking, which means after ten trips or so. Give her a job that "
        "matters, such as the jib sheet or the lookout, and keep the first trips shorter than she would like. She "
        "needs a buoyancy aid of her own size with a crotch strap, and you should practise together, in warm "
        "shallow water, how it feels to fall in. A capsize on purpose makes the real one far less frightening.",
    ),
    (
        "We had our first trip yesterday! But turning through the wind, we got stuck twice with the sails flapping.",
        "Congratulations! That is called being in irons, and everybody gets to know it. The boat had too little "
        "speed when you began, or the rudder was pushed so hard that it braked. Bear away first until she moves "
        "well, then turn smoothly and let her carry her way through. If you are stuck, push the boom out to one "
        "side, turn the rudder to the other, and she will go backwards until the wind catches the sail.",
    ),
    (
        "The patch leaks a little, a few drops an hour. Should I worry?",
        "A few drops are no danger, but find out where they come from. Dry the inside, dust it with chalk and watch "
        "where the first dark line appears. If it is the edge of the patch, the glue did not wet the wood "
        "everywhere: open the seam, dry it and run in thin epoxy. If it is the case itself, the wood has dried out "
        "over the winter and may close by itself after a week in the water.",
    ),
    (
        "It is the case. How long would you wait before doing something about it?",
        "Give it ten days afloat and measure each morning how much you bail. If the amount falls from day to day, "
        "the planks are swelling and you can leave it. If it stays the same, the joint between case and keel has "
        "worked loose; then take her out in autumn, clean the joint and bed it again. If it grows, lift her out "
        "now. Keep the bailer tied to the boat in any case.",
    ),
    (
        "What should I do with her in winter, to avoid all this next year?",
        "Wash her with fresh water, take out everything that can hold moisture and store her upside down on two "
        "padded trestles, under a cover that does not touch the hull, so that air moves beneath it. Wood likes the "
        "cold; what it hates is a heated room, where it dries and splits, and wet leaves in a corner. Put a tub of "
        "water under the boat in spring if it is very dry. Oil or varnish bare places before the frost.",
    ),
    (
        "Thank you. If you had to sum up everything in three rules for my wall, what would they be?",
        "First: know where the wind comes from, and how you will get home against it. Second: what can be let go "
        "must be let go in time, so hold the sheet in your hand and repair what is soft before it is rotten. Third: "
        "dress for the water, wear the float, and tell somebody when you will be back. The rest is practice, and "
        "the boat is a patient teacher.",
    ),
)
