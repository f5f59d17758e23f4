"""The only files of ours that run beside untrusted code. Standard library, torch, triton, cuda.bindings."""
