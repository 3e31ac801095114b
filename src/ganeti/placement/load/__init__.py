"""Readers from the forms in which a cluster is described to `description.Cluster`, and a writer."""
