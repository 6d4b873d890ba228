/* A library whose constructor notes which program has loaded it, in the file that NOTE names. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void note(void)
{
    const char *path = getenv("NOTE");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "%s\n", program_invocation_short_name);
    fclose(file);
}
