"""Matrix products, contractions and linear algebra."""
