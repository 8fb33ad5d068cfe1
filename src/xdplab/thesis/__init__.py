"""A published thesis' raw logs: imported, audited, and drawn as its figures, as published and corrected."""
