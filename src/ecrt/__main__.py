"""``python -m ecrt`` is the command ``ecrt``; torchrun starts it by that name."""

from ecrt.cli import main

if __name__ == "__main__":
    main()
