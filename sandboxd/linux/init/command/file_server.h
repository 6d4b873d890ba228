#pragma once
/* The parts of the file server: operations take their fields from the cursor and return an errno. */
#include "command.h"

#include <limits.h>
#include <sys/stat.h>

/* file_server.c: fields of the answer. False when it would be too large. */
bool answer_add(const void *bytes, size_t size);
bool answer_u32(uint32_t value);
bool answer_u64(uint64_t value);
bool answer_string(const char *text, size_t length);
bool answer_status(const struct stat *status);
size_t answer_length(void);
void answer_cut(size_t length);
void answer_patch(size_t at, const void *bytes, size_t size);

/* file_content.c */
void file_content_begin(void);
/* A regular file, or -1 with errno. Opening never blocks. */
int open_regular(const char *path, int flags, mode_t mode);
/* offset: where to write; -1 for the file's own position. */
int write_all(int fd, const uint8_t *bytes, size_t size, int64_t offset);
int do_read(struct cursor *cursor);
int do_write(struct cursor *cursor);
int do_stat(struct cursor *cursor);
int do_mkdir(struct cursor *cursor);
int do_realpath(struct cursor *cursor);

/* file_remove.c */
void file_remove_begin(void);
/* Both are absolute, without links and dots. */
bool is_within(const char *path, const char *folder);
/* Whether the workspace is this folder or lies in it. */
bool holds_workspace(const char *path);
int do_remove(struct cursor *cursor);

/* file_trees.c */
int do_list(struct cursor *cursor);
int do_rename(struct cursor *cursor);
int do_copy(struct cursor *cursor);
