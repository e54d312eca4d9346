"""The product's numbers against other programs', where these exist."""
