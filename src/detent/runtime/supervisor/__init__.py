"""The supervisor: keeps named slots filled with workers, and writes down every move it makes.

It knows nothing of jobs, stores or engines. What a worker is made of is a `Body`.
"""
