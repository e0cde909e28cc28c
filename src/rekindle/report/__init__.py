"""Pages: rows and readings turned into one self-contained HTML file."""
