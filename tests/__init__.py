"""The tests, in one folder a layer; what they share lies here."""
