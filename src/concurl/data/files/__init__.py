"""Which files a source means, and where each lies; nothing is decoded here."""
