"""The backend `none`: commands run without a sandbox, only if both keys for it are set
(`sandboxd.backends.unsandboxed_keys`). One module for each platform."""
