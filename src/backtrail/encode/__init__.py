"""Pure: values <-> bytes, documents <-> roots, pieces and payloads. No I/O here."""
