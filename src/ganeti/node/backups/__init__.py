"""Backups on this node: the images and manifests of a target, and the programs that read and write them."""
