"""`acespec chat`: a conversation that shows its guesses, or plain lines where no terminal is there to show them."""
