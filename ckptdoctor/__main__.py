"""``python -m ckptdoctor``."""

from ckptdoctor.cli.main import main

if __name__ == "__main__":
    main()
