"""What tests are made with; nothing here is a test."""
