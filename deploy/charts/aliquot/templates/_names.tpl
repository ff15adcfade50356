{{/*
Names, labels and images. There is one Aliquot in a cluster (its CRDs, its resources and its webhook are the cluster's),
so the names of its objects are fixed and do not follow the release's.
*/}}

{{/* Labels of every object. Call with (list . "component"). */}}
{{- define "aliquot.labels" -}}
{{- $root := index . 0 -}}
{{ include "aliquot.selector" . }}
app.kubernetes.io/part-of: aliquot
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels by which a component's pods are selected; they never change. Call with (list . "component"). */}}
{{- define "aliquot.selector" -}}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The user names of the service accounts, as policies and audit logs see them. */}}
{{- define "aliquot.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-agent
{{- end -}}
{{- define "aliquot.keeperUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-certs
{{- end -}}
{{- define "aliquot.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-scheduler
{{- end -}}

{{/*
An image of ours: a digest beats a tag. Call with (list . .Values.webhook.image). A name without a registry is refused:
container runtimes would look for it in a public registry, where the name is free for anybody to take.
*/}}
{{- define "aliquot.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := $root.Values.image.registry | default "" | trimSuffix "/" -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne $registry "") -}}
{{- if not (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $name) -}}
{{- fail (printf "image.registry: name the registry where you have pushed Aliquot's images, such as --set image.registry=registry.example.com/gpu (docs/install.md). Without it nodes would pull %q from a public registry, from whoever has taken that name there" $name) -}}
{{- end -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* kube-scheduler's image: of the cluster's own version, without what a vendor has put behind it. */}}
{{- define "aliquot.kubeSchedulerImage" -}}
{{- $image := .Values.scheduler.kubeScheduler.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{- $version := semver .Capabilities.KubeVersion.Version -}}
{{ $image.repository }}:{{ $image.tag | default (printf "v%d.%d.%d" $version.Major $version.Minor $version.Patch) }}
{{- end -}}
{{- end -}}

{{/*
The domain of the resources. What `helm upgrade --reuse-values` brings along from an older chart has none. Call with the values.
*/}}
{{- define "aliquot.resourceDomain" -}}
{{- .resourceDomain | default "aliquot.dev" -}}
{{- end }}

{{/* The flag that gives a service the domain, where it is not the default one. Call with the values. */}}
{{- define "aliquot.resourceDomainArg" -}}
{{- $domain := include "aliquot.resourceDomain" . -}}
{{- if ne $domain "aliquot.dev" -}}
- --resource-domain={{ $domain }}
{{- end -}}
{{- end }}

{{/*
CEL: a resource, `k`, is in the domain of the resources, or in the default one. Names of the default domain are the webhook's to
refuse where another one is chosen, and pods that began under them go on. Call with the values.
*/}}
{{- define "aliquot.inResourceDomain" -}}
{{- $domains := uniq (list (include "aliquot.resourceDomain" .) "aliquot.dev") -}}
{{- $conditions := list -}}
{{- range $domains -}}
{{- $conditions = append $conditions (printf "k.startsWith('%s/')" .) -}}
{{- end -}}
{{- if eq (len $conditions) 1 -}}
{{ first $conditions }}
{{- else -}}
({{ join " || " $conditions }})
{{- end -}}
{{- end }}

{{/* CEL: a resource, `k`, is one of the four that make a slice, in one of these domains. Call with the values. */}}
{{- define "aliquot.isSliceResource" -}}
{{- $names := list -}}
{{- range $domain := uniq (list (include "aliquot.resourceDomain" .) "aliquot.dev") -}}
{{- range $word := list "gpu" "gpu-mem" "gpu-mem-percent" "gpu-core" -}}
{{- $names = append $names (printf "'%s/%s'" $domain $word) -}}
{{- end -}}
{{- end -}}
k in [{{ join ", " $names }}]
{{- end }}
