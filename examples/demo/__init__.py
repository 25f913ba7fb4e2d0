"""A small application with two crews: one analyses songs, the other renders images of them."""
