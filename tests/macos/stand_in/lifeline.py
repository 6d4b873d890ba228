"""`python -m macos.stand_in.lifeline`: the product's lifeline with the census of the tests."""

from macos.stand_in.census import NamespaceCensus, notes_folder

from sandboxd.macos.lifeline import main

if __name__ == "__main__":
    main(NamespaceCensus(notes_folder()))
