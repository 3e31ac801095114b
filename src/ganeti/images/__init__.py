"""Foreign images of machines: inspection, conversion and creation."""
