"""The REST interface (RAPI version 2): resources, users and their rights, events, over HTTPS."""
