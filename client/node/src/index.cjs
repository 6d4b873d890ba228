"use strict"

const errors = require("./errors.cjs")
const { Box } = require("./box.cjs")
const { Client } = require("./client.cjs")
const { Execution } = require("./execution.cjs")
const { defaultSocket } = require("./transport.cjs")

const { fromWire: _fromWire, ...classes } = errors
module.exports = { Box, Client, Execution, connect: Client.connect, defaultSocket, ...classes }
