"""Images of machines from elsewhere: looked at, converted, and made."""
