"""The compiler: typing, placement, schedule, memory, and the verified plan."""
