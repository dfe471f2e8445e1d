-- An Ingress: it has an address, and nothing that it says about TLS is wrong. As Argo CD's own check, but
-- * an address is an IP or a host name, not an empty entry;
-- * a port that the load balancer reports as failed makes it Degraded, and where it reports ports, TLS needs 443;
-- * with an annotation for cert-manager, an entry of `tls` without Secret or hosts is Degraded: no certificate comes.
-- Whether the certificate is issued stands in the Certificate, not here: ask for it with `health` in graph.yaml.
local spec, status = obj.spec or {}, obj.status or {}
local annotations = obj.metadata.annotations or {}
local entries = spec.tls or {}

local managed = annotations["cert-manager.io/issuer"] or annotations["cert-manager.io/cluster-issuer"]
if managed ~= nil or annotations["kubernetes.io/tls-acme"] == "true" then
  for number, entry in ipairs(entries) do
    local missing = nil
    if (entry.secretName or "") == "" then
      missing = "Secret"
    elseif #(entry.hosts or {}) == 0 then
      missing = "host"
    end
    if missing ~= nil then
      return {status = "Degraded", message = "no certificate: entry " .. number .. " of tls names no " .. missing}
    end
  end
end

local addresses = {}
for _, point in ipairs((status.loadBalancer or {}).ingress or {}) do
  local address = point.ip or point.hostname or ""
  local ports, encrypted = point.ports or {}, false
  for _, port in ipairs(ports) do
    if port.error ~= nil and port.error ~= "" then
      return {status = "Degraded", message = "port " .. (port.port or "") .. " of " .. address .. ": " .. port.error}
    end
    encrypted = encrypted or port.port == 443
  end
  if #entries > 0 and #ports > 0 and not encrypted then
    return {status = "Progressing", message = address .. " does not serve port 443 yet"}
  end
  if address ~= "" then
    table.insert(addresses, address)
  end
end
if #addresses == 0 then
  return {status = "Progressing", message = "no address yet"}
end
return {status = "Healthy", message = table.concat(addresses, ", ")}
