"""Functions that JavaScript calls, and conversion of values between Python and JavaScript."""
