"""What two experiments differ in: what was said of the run, and the first step at which each metric parts."""
