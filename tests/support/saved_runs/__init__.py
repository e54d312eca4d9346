"""Small audits, and the runs they would leave, without training anything."""
