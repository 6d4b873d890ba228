"""gcc and make, go, java."""

from __future__ import annotations

from strict.program import program

C_CODE = """
#include <pthread.h>
#include <stdio.h>
static void *work(void *n) { return (char *)n + 1; }
int main(void) {
    pthread_t thread; void *result;
    pthread_create(&thread, NULL, work, (void *)41);
    pthread_join(thread, &result);
    printf("built %ld\\n", (long)result);
}
"""

GO_CODE = """
package main

import (
    "fmt"
    "io"
    "net"
    "os"
    "os/exec"
    "sync"
    "time"
)

func main() {
    var group sync.WaitGroup
    results := make(chan int, 100)
    for n := 0; n < 100; n++ {
        group.Add(1)
        go func(n int) { defer group.Done(); results <- n }(n)
    }
    group.Wait()
    close(results)
    sum := 0
    for n := range results {
        sum += n
    }
    fmt.Println("goroutines", sum)
    out, err := exec.Command("echo", "hi").Output()
    fmt.Print("exec ", string(out), err, "\\n")
    listener, err := net.Listen("tcp", "127.0.0.1:0")
    if err != nil {
        fmt.Println(err)
        os.Exit(1)
    }
    go func() { c, _ := listener.Accept(); io.WriteString(c, "served"); c.Close() }()
    conn, _ := net.Dial("tcp", listener.Addr().String())
    data, _ := io.ReadAll(conn)
    fmt.Println("net", string(data))
    <-time.After(time.Millisecond)
}
"""

JAVA_CODE = """
import java.net.*;
import java.nio.file.*;
import java.util.concurrent.*;
import java.util.stream.*;

public class Main {
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        System.out.println("threads " + pool.submit(() -> 42).get());
        pool.shutdown();
        System.out.println("parallel " + IntStream.range(0, 1000).parallel().sum());
        Process process = new ProcessBuilder("echo", "hi").redirectErrorStream(true).start();
        System.out.println("process " + new String(process.getInputStream().readAllBytes()).trim());
        Path file = Files.writeString(Path.of("j.txt"), "nio");
        System.out.println("files " + Files.readString(file));
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> {
                try (Socket s = server.accept()) { s.getOutputStream().write("served".getBytes()); }
                catch (Exception e) { e.printStackTrace(); }
            });
            thread.start();
            try (Socket s = new Socket(server.getInetAddress(), server.getLocalPort())) {
                System.out.println("net " + new String(s.getInputStream().readAllBytes()));
            }
            thread.join();
        }
        System.gc();
    }
}
"""

COMPILERS = (
    program(
        "gcc and make",
        "gcc libc6-dev make binutils",
        """
        make -s -j2; ./program; ar rcs lib.a main.o; nm lib.a | grep -c ' T main'
        strip program; ./program
        """,
        """
        built 42
        1
        built 42
        """,
        needs="gcc make ar",
        files={
            "main.c": C_CODE,
            "Makefile": "program: main.o\n\tgcc -pthread -o $@ $^\nmain.o: main.c\n"
            "\tgcc -O2 -pipe -pthread -c -o $@ $<\n",
        },
    ),
    program(
        "go",
        "golang-go",
        """
        export GOCACHE="$PWD/cache" GOPATH="$PWD/path" GOFLAGS=-mod=mod GOPROXY=off CGO_ENABLED=0
        go build -o program . && ./program && go vet .
        """,
        """
        goroutines 4950
        exec hi
        <nil>
        net served
        """,
        files={"main.go": GO_CODE, "go.mod": "module example.test/program\n\ngo 1.19\n"},
        network=True,
    ),
    program(
        "java",
        "default-jdk-headless",
        "javac Main.java; java Main; java -Xmx128m -XX:+UseSerialGC Main | tail -n 1",
        """
        threads 42
        parallel 499500
        process hi
        files nio
        net served
        net served
        """,
        needs="java javac",
        files={"Main.java": JAVA_CODE},
        network=True,
    ),
)
