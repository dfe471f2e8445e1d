-- A Vault of the Bank-Vaults operator: all nodes are there, one of them is active, and the operator could ask them.
-- Without an active node Vault is sealed, not initialised, or elects: the operator works on all three by itself. A node
-- that does not answer is a failure, and the condition carries its words.
local status = obj.status or {}
local wanted, nodes = (obj.spec or {}).size or 1, #(status.nodes or {})
local leader = status.leader or ""

local healthy, problem = "", ""
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Healthy" then
    healthy, problem = condition.status or "", condition.error or ""
  end
end

if healthy == "" then
  return {status = "Progressing", message = "the operator has not looked at it yet"}
end
if nodes < wanted then
  return {status = "Progressing", message = nodes .. " of " .. wanted .. " nodes are there"}
end
if problem ~= "" then
  return {status = "Degraded", message = problem}
end
if leader == "" or healthy ~= "True" then
  return {status = "Progressing", message = "no node is active: sealed, not initialised, or without a leader"}
end
return {status = "Healthy", message = nodes .. " of " .. wanted .. " nodes are there, " .. leader .. " is active"}
