-- A CephCluster of Rook: Rook has finished with this generation (phase Ready, or Connected for an external cluster) and
-- Ceph serves. HEALTH_WARN is the ordinary state of many clusters and counts as Healthy, unless a check says that data
-- cannot be read or written. HEALTH_ERR is a failure, except before the cluster was ready for the first time.
local status = obj.status or {}
local ceph = status.ceph or {}
local phase, health = status.phase or "", ceph.health or ""

local function said(text)
  if status.message ~= nil and status.message ~= "" then
    return text .. ": " .. status.message
  end
  return text
end

-- What Ceph complains about, always in the same order.
local checks = {}
for check in pairs(ceph.details or {}) do
  table.insert(checks, check)
end
table.sort(checks)
local complaint = health
if #checks > 0 then
  complaint = health .. ": " .. table.concat(checks, ", ")
end

-- Rook keeps the condition once it was set, whatever its status.
local ready_once = phase == "Ready" or phase == "Connected"
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" or condition.type == "Connected" then
    ready_once = true
  end
end

if phase == "" then
  return {status = "Progressing", message = "Rook has not looked at it yet"}
end
if phase == "Failure" or status.state == "Error" then
  return {status = "Degraded", message = said("Rook failed")}
end
if health == "HEALTH_ERR" and ready_once then
  return {status = "Degraded", message = complaint}
end
if phase ~= "Ready" and phase ~= "Connected" then
  return {status = "Progressing", message = said(phase)}
end
if (status.observedGeneration or obj.metadata.generation or 0) < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "Rook has not seen the last change yet"}
end
if health == "" then
  return {status = "Progressing", message = "Ceph has not told its health yet"}
end
for _, check in ipairs({"MGR_DOWN", "PG_AVAILABILITY", "TOO_FEW_OSDS"}) do
  if (ceph.details or {})[check] ~= nil then
    return {status = "Progressing", message = complaint}
  end
end
if health ~= "HEALTH_OK" and health ~= "HEALTH_WARN" then
  return {status = "Degraded", message = complaint}
end
return {status = "Healthy", message = complaint}
