"""Shells, file tools and git."""

from __future__ import annotations

from strict.program import program

SHELLS = (
    program(
        "bash",
        "bash",
        """
        set -o pipefail
        seq 3 | while read -r n; do echo "line $n"; done
        diff <(echo a) <(echo a) && echo same
        coproc cat; echo hello >&"${COPROC[1]}"; read -r word <&"${COPROC[0]}"; echo "$word"
        kill %% 2>/dev/null; wait || true
        trap 'echo trapped' USR1; kill -USR1 $$
        (ulimit -n 64; ulimit -n)
        sleep 0.01 & wait $!; echo "$(< /proc/sys/kernel/ostype)"
        cat <<< here
        """,
        """
        line 1
        line 2
        line 3
        same
        hello
        trapped
        64
        Linux
        here
        """,
        interpreter=("/bin/bash", "-eu"),
    ),
    program(
        "dash",
        "dash",
        """
        f() { echo "$1" | tr a-z A-Z; }
        f shout
        (exit 3) || echo "status $?"
        cat <<X
        document
        X
        (sleep 0.01; echo late) & wait
        nice -n 5 true; umask 027; ulimit -f >/dev/null; echo done
        """,
        """
        SHOUT
        status 3
        document
        late
        done
        """,
        interpreter=("/bin/dash", "-eu"),
    ),
)

FILES = (
    program(
        "coreutils",
        "coreutils",
        """
        mkdir -p a/b; echo one >a/f; cp -a a c; mv c/f c/g; ln c/g c/h; ln -s g c/link
        mkfifo pipe; (cat a/f >pipe) & cat pipe; wait
        chmod 640 c/g; stat -c %a c/g; touch -d @86400 c/g; stat -c %Y c/g
        seq 5 | sort -r | head -n 2 | paste -sd,
        printf 'b\\na\\n' | sort --parallel=2 | uniq | wc -l
        dd if=/dev/zero of=big bs=64k count=4 status=none; truncate -s 100 big; stat -c %s big
        cp --reflink=auto --sparse=always big big2; cmp big big2; shuf -i 1-1; sync big
        df . >/dev/null; du -s . >/dev/null; id -u >/dev/null; uname -s; nproc >/dev/null
        timeout 5 echo timed; nohup true 2>/dev/null; stdbuf -oL echo buffered; env -i /bin/true
        ls -laR . >/dev/null; tail -n 1 a/f; tee copy <a/f; sha256sum a/f | cut -c1-8
        split -n 2 big part.; cat part.* | cmp - big; install -m 600 a/f inst
        mktemp -d -p . >/dev/null
        readlink -f c/link >/dev/null; date -u -d @0 +%F; rm -r a c
        rmdir "$(mktemp -d)"; ls -d c || echo gone
        """,
        """
        one
        640
        86400
        5,4
        2
        100
        1
        Linux
        timed
        buffered
        one
        one
        2c8b08da
        1970-01-01
        gone
        """,
        needs="stdbuf timeout shuf",
    ),
    program(
        "find, xargs, sed, grep, awk",
        "findutils sed grep mawk",
        """
        mkdir -p d/e; for n in 1 2 3 4; do echo "v=$n" >d/e/$n.txt; done
        find d -name '*.txt' -newermt 2000-01-01 -print0 | xargs -0 -P 2 -n 1 sed -i 's/v/w/'
        cat d/e/*.txt; find d -name 4.txt -delete; grep -rc w d | sort
        find d -type f -exec wc -c {} + | LC_ALL=C sort
        awk -F= '{ s += $2 } END { print s; "echo sub" | getline x; print x }' d/e/*.txt
        """,
        """
        w=1
        w=2
        w=3
        w=4
        d/e/1.txt:1
        d/e/2.txt:1
        d/e/3.txt:1
         4 d/e/1.txt
         4 d/e/2.txt
         4 d/e/3.txt
        12 total
        6
        sub
        """,
        needs="find xargs sed grep awk",
    ),
    program(
        "tar and gzip",
        "tar gzip",
        """
        mkdir -p src/deep; echo data >src/deep/f; ln -s f src/deep/l; chmod 751 src/deep/f
        tar -czf out.tgz --xattrs src; mkdir x; tar -xzpf out.tgz -C x --xattrs
        stat -c %a x/src/deep/f; readlink x/src/deep/l; tar -cf - src | tar -tf - | sort
        gzip -k src/deep/f; zcat src/deep/f.gz
        """,
        """
        751
        f
        src/
        src/deep/
        src/deep/f
        src/deep/l
        data
        """,
        needs="tar gzip",
    ),
    program(
        "rg",
        "ripgrep",
        """
        mkdir t; for n in 1 2 3 4 5 6; do echo "needle $n" >t/$n; done
        rg --sort path --no-heading needle t; rg --threads 4 -c needle t | wc -l
        rg --mmap -l 'needle 6' t
        """,
        """
        t/1:needle 1
        t/2:needle 2
        t/3:needle 3
        t/4:needle 4
        t/5:needle 5
        t/6:needle 6
        6
        t/6
        """,
    ),
)

GIT = (
    program(
        "git",
        "git",
        """
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q -b main one; cd one; seq 200 >f; git add f; git commit -q -m first
        git checkout -q -b side; echo x >g; git add .; git commit -q -m second
        git checkout -q main; echo y >>f; git commit -q -a -m third; git merge -q -m merged side
        git rebase -q side 2>/dev/null; git stash list; git gc -q; git fsck --no-progress; cd ..
        git clone -q one two 2>/dev/null; git clone -q --no-local one three
        git -C two log --oneline | wc -l
        git -C three status --short; git -C three worktree add -q ../four side; cat four/g
        git -C three grep -c x; git -C three archive HEAD | tar -t | sort
        git -C three config user.name z; git -C three config user.name
        rm three/f; git -C three diff --stat | tail -n 1
        """,
        """
        3
        x
        g:1
        f
        g
        z
         1 file changed, 201 deletions(-)
        """,
        needs="git tar",
    ),
)
