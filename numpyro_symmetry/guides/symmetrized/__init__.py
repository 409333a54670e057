"""`AutoSymmetrized`: what it asks of guides and models, its set-up, its density, and what its draws are worth."""
