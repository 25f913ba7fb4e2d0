"""Live state: the broker, and the shape in which workers, jobs and queues are shown to readers."""
