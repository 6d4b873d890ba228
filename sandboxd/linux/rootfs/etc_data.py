"""The files of a sandbox's /etc, each with the program that needs it. Others are left out."""

from __future__ import annotations

# Copied if they exist and are world-readable.
COPIED: dict[str, str] = {
    "ld.so.cache": "the dynamic loader: without it libraries outside /usr/lib are not found",
    "ld.so.conf": "the dynamic loader",
    "ld.so.conf.d": "the dynamic loader",
    "alternatives": "Debian: /usr/bin/cc, java, awk, editor lead through it",
    "ssl": "the CA store and openssl.cnf: TLS in curl, git, python, node",
    "ca-certificates": "the CA store of Fedora and Arch",
    "ca-certificates.conf": "the CA store",
    "pki": "the CA store of Fedora",
    "crypto-policies": "Fedora: openssl.cnf includes it",
    "localtime": "local time",
    "timezone": "local time (Debian)",
    "services": "getservbyname",
    "protocols": "getprotobyname",
    "host.conf": "the resolver",
    "gai.conf": "the resolver",
    "mime.types": "web servers and python's mimetypes",
    "os-release": "scripts ask which system this is",
    "debian_version": "scripts ask which system this is",
    "lsb-release": "scripts ask which system this is",
    "profile": "login shells",
    "profile.d": "login shells",
    "bash.bashrc": "interactive shells",
    "bashrc": "interactive shells",
    "zsh": "zsh",
    "fish": "fish",
    "inputrc": "readline",
    "terminfo": "terminals",
    "shells": "programs that check $SHELL",
    "magic": "file",
    "gitconfig": "git's system configuration",
    "python3": "Debian's python tools",
    "python3.11": "sitecustomize of Debian's python",
    "perl": "perl",
    "java": "java",
    "java-11-openjdk": "java: its lib folder leads there",
    "java-17-openjdk": "java: its lib folder leads there",
    "java-21-openjdk": "java: its lib folder leads there",
    "java-25-openjdk": "java: its lib folder leads there",
    "maven": "mvn: its conf folder leads there",
    "gradle": "gradle",
    "fonts": "fontconfig",
    "xml": "XML catalogs",
    "sgml": "XML catalogs",
    "texmf": "TeX",
    "vim": "vim",
    "nanorc": "nano",
    "wgetrc": "wget",
    "ImageMagick-6": "convert",
    "ImageMagick-7": "magick",
    "R": "R",
    "php": "php",
    "groff": "man",
    "manpath.config": "man",
    "locale.alias": "locales",
    "nix": "nix",
    "static": "NixOS: most of /etc leads there",
}  # fmt: skip

NSSWITCH = """\
passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
"""
