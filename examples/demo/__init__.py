"""A small application: two crews, one that measures songs and one that makes pictures of them."""
