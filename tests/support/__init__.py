"""What several tests share: twins, tiny learners, runs of the command line."""
