"""A pretend world for laptops and tests: a simulated GPU driver and a pocket cluster."""
