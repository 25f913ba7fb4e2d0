"""The demo of `make adreel`: advertisements are made on the spot and analysed, while a worker is killed."""
