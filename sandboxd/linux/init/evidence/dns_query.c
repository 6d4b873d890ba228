/*
 * Parses the name in a DNS query, the packet that a program without a network still sends.
 *
 * A stub resolver's query has one question and no answers. Other packets are ignored.
 */
#include "evidence.h"

#define HEADER_BYTES 12
#define LABEL_MAX 63
#define POINTER_BITS 0xc0

static bool is_query(const uint8_t *packet)
{
    bool plain = (packet[2] & 0xfa) == 0; /* a question, standard opcode, not truncated */
    bool one_question = packet[4] == 0 && packet[5] == 1;
    bool no_answers = packet[6] == 0 && packet[7] == 0 && packet[8] == 0 && packet[9] == 0;
    return plain && one_question && no_answers && packet[10] == 0 && packet[11] <= 1;
}

static bool in_a_name(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '-' || byte == '_';
}

bool lookup_name(const uint8_t *packet, size_t size, char name[LOOKUP_NAME_MAX + 1])
{
    size_t at = HEADER_BYTES, length = 0;
    if (size < HEADER_BYTES + 6 || !is_query(packet))
        return false;
    while (at < size && packet[at] != 0) {
        size_t label = packet[at++];
        if ((label & POINTER_BITS) != 0 || label > LABEL_MAX || label > size - at)
            return false;
        if (length + label + 1 > LOOKUP_NAME_MAX)
            return false;
        if (length > 0)
            name[length++] = '.';
        for (; label > 0; label--, at++) {
            if (!in_a_name(packet[at]))
                return false;
            name[length++] = (char)packet[at];
        }
    }
    name[length] = 0;
    /* The name's end, its type and its class. */
    return length > 0 && size - at >= 5;
}
