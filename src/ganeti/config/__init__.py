"""The configuration: immutable snapshots, and transactions between them."""
