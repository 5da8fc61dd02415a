"""Tables as other programs write them: CSV, Parquet and NPZ as named columns of one type each.

``delimited`` splits a CSV into texts, ``numerals`` reads numbers in texts, ``columns`` gives each
column a type, ``labels`` says what a label is, and ``inputs`` turns columns into one matrix. What
a file leaves open is refused with the key that settles it; what is left out is named.
"""
