"""`report`: measure how streams are used."""
