"""What confd knows and answers: facts from the rows of the state, none of them a secret."""
