"""What JavaScript calls: requests of the page, and values on their way between Python and JavaScript."""
