"""One private sum: who is asked, what is exchanged, what comes out."""
