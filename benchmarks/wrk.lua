-- Sends the requests of one workload, "append PREFIX STREAMS" or "read PATH", and prints the counts as one line of JSON.
-- The requests are those of headwater.load.sources.Appends and Reads.
local octets = "Content-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\n"
local padding = string.rep(".", 84) .. "\n"
local workers = 0

function setup(thread)
   thread:set("worker", workers)
   workers = workers + 1
end

function init(args)
   local kind, path = args[1], args[2]
   if kind == "read" then
      local ready = "GET " .. path .. "?offset=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
      request = function() return ready end
      return
   end
   local streams, sequence = tonumber(args[3]), -1
   request = function()
      sequence = sequence + 1
      return string.format("POST %s/s%07d HTTP/1.1\r\nHost: localhost\r\n%s%03d-%010d-%s",
                           path, sequence % streams, octets, worker, sequence, padding)
   end
end

function done(summary, latency)
   local e = summary.errors
   print(string.format(
      'JSON {"us": %d, "requests": %d, "bytes": %d, "refused": %d, "broken": %d, "p50": %d, "p99": %d, "p99.9": %d, "max": %d}',
      summary.duration, summary.requests, summary.bytes, e.status, e.connect + e.read + e.write + e.timeout,
      latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
