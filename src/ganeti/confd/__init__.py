"""The facts and answers of confd: from the rows of the state, without secrets."""
