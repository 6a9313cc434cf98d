"""Omniwatch watches a speaking model server: is the voice still with the picture, and how late is the answer?"""

__version__ = "0.1.0"
