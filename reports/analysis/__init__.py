"""Pure functions from Records to what the page says: panels, crossovers, fits, predictions, sentences."""
