"""`python -m sandboxd_client.cli` is `sandboxctl`."""

import sys

from sandboxd_client.cli import main

sys.exit(main())
